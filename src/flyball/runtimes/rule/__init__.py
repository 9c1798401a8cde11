"""Rules: what fires them, the queue in between, and their runs. There is one way: a trigger, the condition, a firing in
the queue, a start that the governor grants, actions as steps, an exit."""
