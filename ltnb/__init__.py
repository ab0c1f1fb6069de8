"""Long-tailed representation learning in notebooks: four papers derived, trained and drawn on one protocol."""
