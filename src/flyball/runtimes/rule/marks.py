"""The marks of a run's processes, by which they are found wherever they went. Commands have the run's own. Its worker
has another: what that started lives as long as the run, and is not what a command of the same run left behind."""


def of_worker(run: str) -> str:
    """The run that the processes of a run's worker say they are of."""
    return f"{run}.worker"
