"""What every test shares: generated cases are judged by what they find, and not by how busy the machine is."""

from hypothesis import HealthCheck, settings

settings.register_profile("callsmith", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("callsmith")
