"""Processes of Spark killed amid jobs and a running application, what comes of it compared with an oracle."""
