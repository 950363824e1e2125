"""What commands show at a terminal."""
