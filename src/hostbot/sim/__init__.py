"""The bench: a table, two arms, a human hand, 229 training tasks and 50 novel ones, in MuJoCo.

Read in this order: ``task`` (what a task is), ``families`` (the tasks), ``moves`` and ``keys`` (what scripts are
made of), ``actor`` (who carries them out), ``env`` (the robot's world), ``demonstrator`` (the human's).
"""
