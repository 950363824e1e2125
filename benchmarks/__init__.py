"""Measurements, one module each: `python -m benchmarks [names…] [--model NAME]`."""
