//! The behaviour of Kubernetes' own parser, as observable facts: text in, value and canonical text out.

use proptest::prelude::*;

use super::*;

fn value(mantissa: i128, exponent: i32) -> i128 {
    let power = 10i128.pow(u32::try_from(exponent + 9).unwrap());
    mantissa * power
}

fn parse(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn kubernetes_vectors_parse_to_their_values_with_either_sign() {
    use Format::{BinarySi as Bin, DecimalExponent as Exp, DecimalSi as Dec};
    let ki = 1024i128;
    let table = [
        ("0", 0, 0, Dec),
        ("0n", 0, 0, Dec),
        ("0Ki", 0, 0, Bin),
        ("0T", 0, 0, Dec),
        ("1", 1, 0, Dec),
        ("1Ki", ki, 0, Bin),
        ("8Ki", 8 * ki, 0, Bin),
        ("7Mi", 7 * ki.pow(2), 0, Bin),
        ("6Gi", 6 * ki.pow(3), 0, Bin),
        ("5Ti", 5 * ki.pow(4), 0, Bin),
        ("4Pi", 4 * ki.pow(5), 0, Bin),
        ("3Ei", 3 * ki.pow(6), 0, Bin),
        ("100Ti", 100 * ki.pow(4), 0, Bin),
        ("5n", 5, -9, Dec),
        ("4u", 4, -6, Dec),
        ("3m", 3, -3, Dec),
        ("50k", 5, 4, Dec),
        ("7M", 7, 6, Dec),
        ("6G", 6, 9, Dec),
        ("300T", 3, 14, Dec),
        ("2P", 2, 15, Dec),
        ("1E", 1, 18, Dec),
        ("1E-3", 1, -3, Exp),
        ("1e3", 1, 3, Exp),
        ("1E18", 1, 18, Exp),
        ("1e14", 1, 14, Exp),
        ("100.035k", 100_035, 0, Dec),
        ("0.0005k", 5, -1, Dec),
        ("0.00050k", 5, -1, Dec),
        ("0.05000", 5, -2, Dec),
        ("0.5e0", 5, -1, Exp),
        ("0.5e-2", 5, -3, Exp),
        ("10.035M", 10_035, 3, Dec),
        ("1.3E+6", 13, 5, Exp),
        ("1.40e9", 14, 8, Exp),
        ("1.7E18", 17, 17, Exp),
        ("6.987654321G", 6_987_654_321, 0, Dec),
        ("1.01E", 101, 16, Dec),
        // Finer than a billionth rounds up.
        ("3.001n", 4, -9, Dec),
        ("1.1E-9", 2, -9, Exp),
        ("0.0000000001", 1, -9, Dec),
        ("0.00000000050", 1, -9, Dec),
        ("0.5e-9", 1, -9, Exp),
        ("0.9n", 1, -9, Dec),
        ("0.00000012345", 124, -9, Dec),
        ("1e-400", 1, -9, Exp),
        // Binary stops at 2^63 - 1, decimal does not.
        ("9Ei", i128::from(i64::MAX), 0, Bin),
        ("9223372036854775807Ki", i128::from(i64::MAX), 0, Bin),
        ("99999999999999999999999999999999999999999Ei", i128::from(i64::MAX), 0, Bin),
        ("12E", 12, 18, Dec),
        ("100.035Ki", 10_243_584, -2, Bin),
        ("0.5Mi", 524_288, 0, Bin),
        ("0.05Gi", 536_870_912, -1, Bin),
        ("0.025Ti", 274_877_906_944, -1, Bin),
        ("0.000000000001Ki", 2, -9, Dec),
        (".001", 1, -3, Dec),
        (".0001k", 100, -3, Dec),
        ("1.", 1, 0, Dec),
        ("1.G", 1, 9, Dec),
    ];
    for (text, mantissa, exponent, format) in table {
        let expected = value(mantissa, exponent);
        assert_eq!(parse(text), Quantity { nanos: expected, format }, "{text}");
        assert_eq!(parse(&format!("+{text}")).nanos, expected, "+{text}");
        assert_eq!(parse(&format!("-{text}")).nanos, -expected, "-{text}");
    }
}

#[test]
fn kubernetes_vectors_print_canonically() {
    let table = [
        ("1024Mi", "1Gi"),
        ("307200Ki", "300Mi"),
        ("6Ki", "6Ki"),
        ("1025024Mi", "1001Gi"),
        ("1024Gi", "1Ti"),
        ("5000m", "5"),
        ("0.5", "500m"),
        ("1000M", "1G"),
        ("0.001T", "1G"),
        ("1000000000", "1G"),
        ("1000u", "1m"),
        ("1.08", "1080m"),
        ("1080000000n", "1080m"),
        ("1000E", "1e21"),
        ("5000E", "5e21"),
        ("1000000E", "1e24"),
        ("1234567M", "1234567M"),
        ("0", "0"),
        ("00", "0"),
        ("0Gi", "0"),
        (".001e12", "1e9"),
        ("0.001e0", "1e-3"),
        ("1000e-12", "1e-9"),
        ("80e-3", "80e-3"),
        ("300e6", "300e6"),
        ("3e3", "3e3"),
        ("80u", "80u"),
        (".001Ki", "1024m"),
        (".000001Ki", "1024u"),
        (".000000001Ki", "1024n"),
        (".000000000001Ki", "2n"),
        ("1.5Gi", "1536Mi"),
        ("1.5", "1500m"),
        ("12E", "12E"),
        ("100.035Ki", "102435840m"),
        ("1e0", "1"),
        ("8Ei", "9223372036854775807"),
    ];
    for (text, canonical) in table {
        assert_eq!(parse(text).to_string(), canonical, "{text}");
        if canonical != "0" {
            let negative = format!("-{canonical}");
            // The cap of binary values and their fall to decimal below one unit look at the positive side only.
            if !text.starts_with(".000") && text != ".001Ki" {
                assert_eq!(parse(&format!("-{text}")).to_string(), negative, "-{text}");
            }
        }
        assert_eq!(parse(canonical).to_string(), canonical, "{canonical} again");
    }
    assert_eq!(Quantity::from_bytes(1025, Format::BinarySi).to_string(), "1025");
    assert_eq!(Quantity::from_bytes(5, Format::BinarySi).to_string(), "5");
}

#[test]
fn what_is_no_quantity_is_refused() {
    for bad in [
        "1.1.M",
        "1+1.0M",
        "0.1mi",
        "0.1am",
        "aoeu",
        ".5i",
        "1i",
        "-3.01i",
        "-3.01e-",
        " 1",
        "1 ",
        "1K",
        "1ki",
        "1KI",
        "Gi",
        ".",
        "-",
        "+",
        "-.",
        "1e",
        "1e+",
        "1e1.5",
        "1ee3",
        "--1",
        "0x10",
        "1_000",
        "١",
        "1Gi\n",
        "\n\u{3}1Ti",
        "1e99999999999999999999",
    ] {
        assert!(matches!(bad.parse::<Quantity>(), Err(ParseQuantityError::Syntax { .. })), "{bad:?}");
    }
    assert_eq!("".parse::<Quantity>(), Err(ParseQuantityError::Empty));
    assert!(matches!("1e400".parse::<Quantity>(), Err(ParseQuantityError::TooLarge { .. })));
    assert!("1".repeat(10_000).parse::<Quantity>().is_err());
}

#[test]
fn bytes_round_up_and_know_their_limits() {
    for (text, bytes) in [
        ("1", Some(1)),
        ("1m", Some(1)),
        ("1001m", Some(2)),
        ("0", Some(0)),
        ("-1Gi", None),
        ("1.5Gi", Some(1_610_612_736)),
        ("1G", Some(1_000_000_000)),
        ("12E", Some(12_000_000_000_000_000_000)),
        ("20E", None),
        ("-500m", Some(0)),
    ] {
        assert_eq!(parse(text).bytes(), bytes, "{text}");
    }
}

proptest! {
    #[test]
    fn every_number_of_bytes_survives_printing_and_parsing(bytes: u64, binary: bool) {
        let format = if binary { Format::BinarySi } else { Format::DecimalSi };
        let printed = Quantity::from_bytes(bytes, format).to_string();
        let parsed = printed.parse::<Quantity>().unwrap().bytes().unwrap();
        prop_assert_eq!(parsed, bytes, "{}", printed);
    }

    #[test]
    fn no_text_breaks_the_parser_and_canonical_text_is_stable(text in "[-+]?[0-9]{0,25}(\\.[0-9]{0,25})?([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{0,4})?") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            let canonical = quantity.to_string();
            let again: Quantity = canonical.parse().unwrap();
            prop_assert_eq!(again.nanos, quantity.nanos);
            prop_assert_eq!(again.to_string(), canonical);
        }
    }

    #[test]
    fn any_unicode_is_parsed_or_refused(text in ".{0,60}") {
        let _ = text.parse::<Quantity>();
    }
}
