"""From a model to behaviour: the cascade p -> o -> a and, above it, the policy."""
