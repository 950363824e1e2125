"""What is in the buffer to its end and needs no repair, read at once: values · sections (of calls) · patterns (made from nodes).

What is read so is what the walk over the nodes would read; where that is not certain nothing is read, and the walk begins.
"""
