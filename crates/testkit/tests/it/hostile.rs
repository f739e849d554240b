//! Whoever means harm gets nothing, and others notice nothing.

mod canaries;
mod floods;
mod full_disk;
mod headers;
mod matrix;
mod slow;
mod smuggling;
mod timing;
mod told;
