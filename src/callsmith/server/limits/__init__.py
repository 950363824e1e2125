"""What may be asked for: how large a request is, how many answers at a time, how much in a minute."""
