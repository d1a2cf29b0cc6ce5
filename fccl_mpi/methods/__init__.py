"""Federated methods: one short file each, registered in `registry.METHODS`."""
