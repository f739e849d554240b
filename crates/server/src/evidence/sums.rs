//! The fee of an order with every step, and whether a sum follows from its figures.

use countersign_domain::fees::{self, MarkupUnit, OrderFee};
use countersign_domain::ids::config_id;
use countersign_domain::money::{Amount, Currency};
use countersign_domain::rules::Markup;
use countersign_protocol::exact::Exact;

use super::entry::{RuleVersion, Sum};

/// What `rounding` says.
const ROUNDED: &str = "half_up_to_6_decimals";
const EXACT: &str = "none";

impl Sum {
    /// The sum of a fee as it was fixed.
    pub fn of(fee: &OrderFee, amount: Amount, currency: &Currency, unit: MarkupUnit) -> Result<Self, fees::FeeRefused> {
        let product = fees::product(amount, &fee.markup, unit)?;
        Ok(Self {
            config_id: fee.config_id.map(config_id),
            version_no: fee.version_no,
            amount: amount.to_string(),
            currency: currency.as_str().to_owned(),
            r_markup: fee.markup.r().to_string(),
            f_markup: fee.markup.f().to_string(),
            markup_unit: unit.name().to_owned(),
            product: product.text,
            rounding: if product.is_rounded { ROUNDED } else { EXACT }.to_owned(),
            r_fee: fee.fee.r_fee.to_string(),
            f_fee: fee.fee.f_fee.to_string(),
            worked_sum: fee.worked_sum.clone(),
        })
    }

    /// Works the sum out anew, of amount, currency, markup and unit; an error names the first figure that is another.
    pub(super) fn check(&self) -> Result<(), String> {
        let amount = amount("amount", &self.amount)?;
        let currency = Currency::parse(&self.currency).ok_or("its currency is none")?;
        let unit = MarkupUnit::from_name(&self.markup_unit).ok_or("its markup_unit is none")?;
        let markup = markup(&self.r_markup, &self.f_markup)?;
        let refused = |refused: fees::FeeRefused| format!("the fee cannot be worked out: {refused}");
        let fee = fees::fee(amount, &markup, unit).map_err(refused)?;
        let product = fees::product(amount, &markup, unit).map_err(refused)?;
        let rounding = if product.is_rounded { ROUNDED } else { EXACT };
        let worked = fees::worked_sum(amount, &currency, &markup, unit).map_err(refused)?;
        for (name, said, is) in [
            ("product", &self.product, product.text),
            ("rounding", &self.rounding, rounding.to_owned()),
            ("r_fee", &self.r_fee, fee.r_fee.to_string()),
            ("f_fee", &self.f_fee, fee.f_fee.to_string()),
            ("worked_sum", &self.worked_sum, worked),
        ] {
            if *said != is {
                return Err(format!("the fee does not follow: its {name} is {said:?}, and worked out it is {is:?}"));
            }
        }
        Ok(())
    }

    /// Whether it rests on this version, which was in force at `paid`.
    pub(super) fn rests_on(&self, rule: Option<&RuleVersion>, paid: super::At) -> Result<(), String> {
        let Some(rule) = rule else {
            let bare =
                self.config_id.is_none() && self.version_no.is_none() && self.r_markup == "0" && self.f_markup == "0";
            return if bare { Ok(()) } else { Err("its rule version is missing before it".to_owned()) };
        };
        let is_its = self.config_id.as_ref() == Some(&rule.config_id) && self.version_no == Some(rule.version_no);
        if !is_its || (&self.r_markup, &self.f_markup) != (&rule.r_markup, &rule.f_markup) {
            return Err("it does not rest on the rule version before it".to_owned());
        }
        let was_in_force = rule.effective_at.max(rule.created_at) <= paid && rule.due_at.is_none_or(|due| paid < due);
        if was_in_force { Ok(()) } else { Err("its rule version was not in force when the order was paid".to_owned()) }
    }
}

/// An amount as amounts are written.
pub(super) fn amount(name: &str, text: &str) -> Result<Amount, String> {
    let amount = Amount::parse(text).ok().filter(|amount| amount.to_string() == text);
    amount.ok_or_else(|| format!("its {name} is no amount"))
}

fn markup(r: &str, f: &str) -> Result<Markup, String> {
    let exact = |text: &str| Exact::parse(text).ok().filter(|exact| exact.to_string() == text).map(|exact| exact.0);
    let (r, f) = exact(r).zip(exact(f)).ok_or("its markup is no number")?;
    Markup::new(r, f).map_err(|refused| format!("its markup is none: {refused}"))
}
