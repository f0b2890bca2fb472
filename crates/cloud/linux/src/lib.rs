//! The Linux cloud.
