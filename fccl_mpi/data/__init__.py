"""Image sets: their HDF5 schema, their place on the device, augmentation and partition."""
