"""Suites, baselines, rollouts and recordings: where the bench meets data and policies."""
