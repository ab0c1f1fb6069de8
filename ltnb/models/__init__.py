"""Networks: encoders, projectors and classifiers."""
