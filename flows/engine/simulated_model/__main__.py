"""``python -m flows.engine.simulated_model``: serve the simulated model over TCP."""

from flows.engine.simulated_model.server import main

if __name__ == "__main__":
    main()
