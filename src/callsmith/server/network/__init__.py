"""Between the network and HTTP: which connections are taken, for how long, and whose requests are answered."""
