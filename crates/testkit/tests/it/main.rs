//! All tests that see more than one crate, in one binary: each binary would link the whole tree again.

mod certify;
mod cut_off;
mod decimals;
mod dispatch;
mod explained;
mod failures;
mod fleet;
mod histories;
mod hostile;
mod journey_convert_order;
mod journey_events;
mod journey_identities;
mod journey_replay;
mod journey_rule_query;
mod journey_rule_upgrade;
mod keeping;
mod kills;
mod listening;
mod moves;
mod nodes;
mod operator;
mod refusals;
mod remembered_rules;
mod rotations;
mod stores;
mod tidy;
