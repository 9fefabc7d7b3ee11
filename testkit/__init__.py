"""Parts that tests, benchmarks and the site share: small jobs, faults on emulated nodes, samples of files.

train_jobs, reshard     small training jobs, on ranks of this machine, and under another layout than the one that saved
fault_jobs, fault_nodes jobs as processes and as nodes of an emulated cluster, to be killed
skew                    a process whose clock is off
pickles                 a pickle that does something when it is loaded
runs                    a run folder as `train` leaves it, without the training
fake                    an accelerator of torch's PrivateUse1 kind
executor_cases, host_memory   what schedules are executed on, and a transport over host memory
topology_dumps, sysfs_folder  dumps of a node's topology, and a folder like /sys
small_checkpoints       small decoders of ours, a checkpoint of one, a config.json of Hugging Face
simgrid_cases           networks that SimGrid simulated
chromium                a browser without a screen
"""
