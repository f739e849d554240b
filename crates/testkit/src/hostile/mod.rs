//! Whoever means harm: requests that deceive, floods, clients that dawdle, strangers who guess, and what a thief would find.

pub mod canaries;
pub mod flood;
pub mod full_disk;
pub mod matrix;
pub mod nginx;
pub mod shapes;
pub mod slow;
pub mod smuggling;
pub mod timing;
