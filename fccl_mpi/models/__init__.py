"""The backbones of the paper for 32×32 RGB images, and the registry that builds them by name."""
