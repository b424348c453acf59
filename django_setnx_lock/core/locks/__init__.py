"""Taking locks, holding them and letting them go."""
