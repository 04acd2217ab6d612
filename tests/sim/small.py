"""A small trace in the simulator's own form, as text."""

from pathlib import Path

NODES = "name,gpus,cores,memory_gib,type\nn1,4,32,128,A\nn2,4,32,128,A\n"
PROJECTS = "name,quota,limit\na,4,\nb,4,\n"
HEAD = "submit_s,project,gpus,run_s,name,tasks,elastic,preemptibility,background,priority\n"
JOBS = (
    HEAD + "0,a,1,600,j1,6,,,,\n"
    "10,a,1,100,e1,,yes,,,\n"
    "20,a,0.5,50,,,,,,\n"
    "60,b,2,300,b1,,,,,\n"
    "70,b,2,300,b2,,,non-preemptible,,80\n"
    "80,b,1,30,f1,,,,yes,\n"
)


def written(folder: Path, jobs: str = JOBS, nodes: str = NODES, projects: str = PROJECTS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("jobs", jobs), ("nodes", nodes), ("projects", projects)):
        (folder / f"{name}.csv").write_text(text)
    return folder
