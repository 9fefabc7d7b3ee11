"""Groups over several hosts: rank placement, link rates, and the engine that joins local and network collectives."""
