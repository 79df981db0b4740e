//! Devices, streams, communicators, plan, launch and watchdog for graphs with collectives.
