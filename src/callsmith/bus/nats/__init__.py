"""The bus over NATS: other nodes, their offers, calls to them and from them."""
