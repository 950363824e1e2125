"""The client's side of the dialects: what a request becomes for a server of another maker, and what its answer means."""
