//! Nodes that are alive and have other settings, where these have to be the same on all nodes: each heartbeat says which.

use std::collections::BTreeMap;

use countersign_store::nodes::Other;
use metrics::gauge;

use crate::config::differing;

const NODES_WITH_OTHER_SETTINGS: &str = "countersign_nodes_with_other_settings";

/// What there is to be read at `/metrics`.
pub(super) fn describe() {
    metrics::describe_gauge!(
        NODES_WITH_OTHER_SETTINGS,
        "Nodes that are alive and whose settings differ from this node's where they have to be the same"
    );
}

/// A node as the log names it, by its id: two on machines of their own may say the same address.
type Differing = BTreeMap<String, (String, Vec<String>)>;

/// What of them the log has said.
#[derive(Debug, Default)]
pub(super) struct Unlike {
    said: Differing,
}

/// What is new of one of them.
#[derive(Debug, PartialEq, Eq)]
struct News {
    node_id: String,
    name: String,
    /// The names of the settings in which it differs; none: it does not any more, or is not alive.
    settings: Vec<String>,
}

impl Unlike {
    /// Says in the log what has changed since the last heartbeat, and shows how many there are.
    pub(super) fn tell(&mut self, own: &str, others: &[Other]) {
        for News { node_id, name, settings } in self.news(own, others) {
            if settings.is_empty() {
                tracing::info!(node_id, "The node {name} has no other settings than this one any more, or has gone");
            } else {
                let settings = settings.join(", ");
                tracing::warn!(node_id, "A node runs with other settings than this one: {name} has another {settings}");
            }
        }
        gauge!(NODES_WITH_OTHER_SETTINGS).set(u32::try_from(self.said.len()).unwrap_or(u32::MAX));
    }

    fn news(&mut self, own: &str, others: &[Other]) -> Vec<News> {
        let differs = |other: &Other| {
            let settings = differing(own, &other.settings).filter(|settings| !settings.is_empty())?;
            Some((other.node.to_string(), (other.name.clone(), settings)))
        };
        let now: Differing = others.iter().filter_map(differs).collect();
        let before = std::mem::replace(&mut self.said, now);
        let is_new = |(node_id, (_, settings)): &(&String, &(String, Vec<String>))| {
            before.get(*node_id).is_none_or(|(_, said)| said != settings)
        };
        let new = self.said.iter().filter(is_new);
        let new = new.map(|(node_id, (name, settings))| News {
            node_id: node_id.clone(),
            name: name.clone(),
            settings: settings.clone(),
        });
        let over = before.iter().filter(|(node_id, _)| !self.said.contains_key(*node_id));
        let over = over.map(|(node_id, (name, _))| News {
            node_id: node_id.clone(),
            name: name.clone(),
            settings: Vec::new(),
        });
        new.chain(over).collect()
    }
}

#[cfg(test)]
mod tests {
    use countersign_store::nodes::NodeId;

    use super::*;

    fn other(node: u8, settings: &str) -> Other {
        Other { node: NodeId([node; 16]), name: format!("n{node}"), settings: settings.to_owned() }
    }

    #[test]
    fn a_node_is_told_of_once_until_its_settings_change_or_it_differs_no_more() {
        const OWN: &str = r#"{"a":1,"b":1}"#;
        let mut unlike = Unlike::default();
        let mut news = |others: &[Other]| -> Vec<String> {
            let told = unlike.news(OWN, others).into_iter();
            told.map(|news| format!("{} {} {}", &news.node_id[..2], news.name, news.settings.join("+"))).collect()
        };
        let (a, both) = (r#"{"a":2,"b":1}"#, r#"{"a":2,"b":2}"#);
        let none: [&str; 0] = [];
        assert_eq!(news(&[]), none);
        assert_eq!(news(&[other(1, a)]), ["01 n1 a"]);
        assert_eq!(news(&[other(1, a)]), none, "it was said");
        assert_eq!(news(&[other(2, a), other(1, a)]), ["02 n2 a"]);
        assert_eq!(news(&[other(1, both), other(2, a)]), ["01 n1 a+b"], "in more than before");
        assert_eq!(news(&[other(2, a)]), ["01 n1 "], "it is over");
        assert_eq!(news(&[other(1, a), other(2, a)]), ["01 n1 a"], "it has begun anew");
        // Who has noted nothing, and who has noted what this program does not know, is not among them.
        assert_eq!(news(&[other(1, ""), other(2, r#"{"a":1,"b":1,"c":1}"#)]), ["01 n1 ", "02 n2 "]);
        assert_eq!(unlike.said.len(), 0);
    }
}
