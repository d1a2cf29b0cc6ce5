"""What a user can set: dataclasses with their checks, composed by Hydra from presets and overrides."""
