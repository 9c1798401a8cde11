"""Which host of a fleet runs what. The queues and workflows of an engine (DBOS, on the database of the store) do it;
here is what is placed, and how a host takes and leaves it. Nothing of this keeps a unit from running twice: the
governor does that, in one transaction. Placement is only about that it runs at all, and where."""
