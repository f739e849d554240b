//! The protocol's tests: the shared vectors, published cases of others, properties, and the merchants' page.

mod merchants_page;
mod parts;
mod properties;
mod published;
mod vectors;
