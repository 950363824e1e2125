"""Builds of llama.cpp's C library: which there are, which fit this machine, which were proven here, and which one is used."""
