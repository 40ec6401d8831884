//! The one token of ours inside `ovn-cms-options`, and everybody else's, which stay as they are to the byte.

/// Announces that the node takes gateway ports.
pub const GATEWAY_TOKEN: &str = "enable-chassis-as-gw";

/// True when the token is among the options.
pub fn has_gateway(options: &str) -> bool {
    options.split(',').any(|token| token.trim() == GATEWAY_TOKEN)
}

/// The options with the token as it should be: `None` when nothing is left of them. Order and spelling of the others
/// stay.
pub fn with_gateway(options: Option<&str>, wanted: bool) -> Option<String> {
    let Some(options) = options else { return wanted.then(|| GATEWAY_TOKEN.to_owned()) };
    if has_gateway(options) == wanted {
        return Some(options.to_owned());
    }
    if wanted {
        let separator = if options.is_empty() || options.ends_with(',') { "" } else { "," };
        return Some(format!("{options}{separator}{GATEWAY_TOKEN}"));
    }
    let others: Vec<&str> = options.split(',').filter(|token| token.trim() != GATEWAY_TOKEN).collect();
    // Only when our token was all there was does the key go: an empty element of somebody else's is theirs.
    if others.is_empty() { None } else { Some(others.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case::none_on(None, true, Some("enable-chassis-as-gw"))]
    #[case::none_off(None, false, None)]
    #[case::empty_on(Some(""), true, Some("enable-chassis-as-gw"))]
    #[case::empty_off(Some(""), false, Some(""))]
    #[case::alone_off(Some("enable-chassis-as-gw"), false, None)]
    #[case::alone_on(Some("enable-chassis-as-gw"), true, Some("enable-chassis-as-gw"))]
    #[case::appended(
        Some("availability-zones=az-1:az-2"),
        true,
        Some("availability-zones=az-1:az-2,enable-chassis-as-gw")
    )]
    #[case::first(Some("enable-chassis-as-gw,card-serial-number=X1"), false, Some("card-serial-number=X1"))]
    #[case::middle(Some("b,enable-chassis-as-gw,a"), false, Some("b,a"))]
    #[case::twice(Some("enable-chassis-as-gw,a,enable-chassis-as-gw"), false, Some("a"))]
    #[case::blanks_of_others_stay(Some(" a , enable-chassis-as-gw ,  b"), false, Some(" a ,  b"))]
    #[case::a_longer_word_is_another_token(
        Some("enable-chassis-as-gw-extra"),
        false,
        Some("enable-chassis-as-gw-extra")
    )]
    #[case::a_longer_word_does_not_count(
        Some("not-enable-chassis-as-gw"),
        true,
        Some("not-enable-chassis-as-gw,enable-chassis-as-gw")
    )]
    #[case::trailing_comma(Some("a,"), true, Some("a,enable-chassis-as-gw"))]
    fn case_26_only_our_token_changes(#[case] before: Option<&str>, #[case] wanted: bool, #[case] after: Option<&str>) {
        assert_eq!(with_gateway(before, wanted).as_deref(), after);
    }

    proptest! {
        #[test]
        fn others_keep_their_bytes_and_their_order(tokens in prop::collection::vec("[ a-z=:0-9-]{0,12}", 0..6), at in 0usize..7, wanted: bool) {
            prop_assume!(tokens.iter().all(|token| token.trim() != GATEWAY_TOKEN));
            let mut before = tokens.clone();
            before.insert(at.min(tokens.len()), GATEWAY_TOKEN.to_owned());
            let after = with_gateway(Some(&before.join(",")), wanted);
            prop_assert_eq!(after.as_deref().is_some_and(has_gateway), wanted);
            let rest: Vec<String> = after.iter().flat_map(|text| text.split(',')).filter(|token| *token != GATEWAY_TOKEN).map(str::to_owned).collect();
            prop_assert_eq!(rest, tokens);
        }

        #[test]
        fn the_second_time_changes_nothing(before in prop::option::of("[ a-z,=-]{0,40}"), wanted: bool) {
            let once = with_gateway(before.as_deref(), wanted);
            prop_assert_eq!(with_gateway(once.as_deref(), wanted), once);
        }
    }
}
