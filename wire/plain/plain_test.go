package plain

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestNamesAreShownAsTheyAreUnlessTheyMislead(t *testing.T) {
	for name, want := range map[string]string{
		"orders-mirror-1":        "orders-mirror-1",
		"Überweisung-7":          "Überweisung-7",
		"":                       `""`,
		"a b":                    `"a b"`,
		"a,b":                    `"a,b"`,
		`a"b`:                    `"a\"b"`,
		`a\nb`:                   `"a\\nb"`,
		"a\nb":                   `"a\nb"`,
		"\x1b[2J":                `"\x1b[2J"`,
		"\u009b31m":              `"\u009b31m"`,
		"\u202egnp":              `"\u202egnp"`,
		"\xff":                   `"\xff"`,
		strings.Repeat("é", 100): strings.Repeat("é", 100),
		strings.Repeat("é", 101): `"` + strings.Repeat("é", 100) + `"... (202 bytes)`,
	} {
		if got := Name(name); got != want {
			t.Errorf("%q is shown as %s, want %s", name, got, want)
		}
	}
	if got := Names([]string{"a", "b c"}); got != `a, "b c"` {
		t.Error(got)
	}
	if got := Quote("a"); got != `"a"` {
		t.Error(got)
	}
}

func TestTextStaysOnItsLine(t *testing.T) {
	for text, want := range map[string]string{
		`the cluster "eu" is away`:  `the cluster "eu" is away`,
		"one\ntwo\x1b]0;x\a":        `one\ntwo\x1b]0;x\a`,
		"a\u2028b\xff":              `a\u2028b\xff`,
		strings.Repeat("x", 2001):   strings.Repeat("x", 2000) + "...",
		strings.Repeat("\n", 30000): strings.Repeat(`\n`, 2000) + "...",
	} {
		if got := Text(text); got != want {
			t.Errorf("%.20q is shown as %.60q, want %.60q", text, got, want)
		}
	}
}

func TestNothingIsHidden(t *testing.T) {
	shown := func(s string, but ...rune) bool {
		return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) && string(r) != string(but) }) < 0
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
			rapid.StringOf(rapid.RuneFrom([]rune{0, 0x1b, '\n', 0x7f, 0x85, 0x9b, 0x202e, 0x2066, 0x2028, 0xfeff, 0xe0001}))).Draw(t, "s")
		for how, got := range map[string]string{"Name": Name(s), "Names": Names([]string{s, s}), "Quote": Quote(s), "Text": Text(s)} {
			if !shown(got) {
				t.Errorf("%s of %q: %q", how, s, got)
			}
		}
		text, err := json.Marshal(map[string]string{"id": s})
		if err != nil {
			t.Fatal(err)
		}
		got := JSON(append(text, '\n'))
		if !shown(string(got), '\n') {
			t.Errorf("JSON of %q: %q", s, got)
		}
		var before, after map[string]string
		if err := json.Unmarshal(text, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got, &after); err != nil || before["id"] != after["id"] {
			t.Errorf("JSON of %q has another value: %q, %v", s, after["id"], err)
		}
	})
}
