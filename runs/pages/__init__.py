"""The pages of run history and of starting a run. Views read rows into view models; templates only lay them out."""
