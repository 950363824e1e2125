"""The run loop: ask the model, run the tools, feed back, stop. It knows the ports and no backend."""
