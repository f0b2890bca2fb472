//! IPVS.
