"""The capability bus: tools that are capabilities of other machines, called on the caller's authority."""
