"""`callsmith check`: probes that find out whether a server's tool calling is right, whatever server it is."""
