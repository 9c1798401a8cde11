"""The first minute: a fleet of honest and misbehaving units, narrated as it happens."""
