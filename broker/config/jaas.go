package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

const (
	plainModule = "org.apache.kafka.common.security.plain.PlainLoginModule"
	scramModule = "org.apache.kafka.common.security.scram.ScramLoginModule"
)

// jaasOption is one name="value" of a login; a quote in a value is escaped.
var jaasOption = regexp.MustCompile(`\s+([A-Za-z0-9_.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))`)

// parseLogin reads <module> required name="value" ...;. Errors do not repeat
// the text, which holds passwords.
func parseLogin(text, module, mechanism string) (map[string]string, error) {
	body, ended := strings.CutSuffix(strings.TrimSpace(text), ";")
	if !ended {
		return nil, errors.New("must end in a semicolon")
	}
	rest, ok := strings.CutPrefix(body, module)
	if !ok {
		return nil, fmt.Errorf("must begin with %s, the login module of %s", module, mechanism)
	}
	trimmed := strings.TrimLeft(rest, " \t\r\n")
	options, ok := strings.CutPrefix(trimmed, "required")
	if !ok || trimmed == rest {
		return nil, errors.New(`must have the word "required" after the login module`)
	}
	values := make(map[string]string)
	left := jaasOption.ReplaceAllStringFunc(options, func(option string) string {
		m := jaasOption.FindStringSubmatch(option)
		values[m[1]] = unescape(m[2]) + m[3]
		return ""
	})
	if strings.TrimSpace(left) != "" {
		return nil, errors.New(`has text that is not name="value"`)
	}
	return values, nil
}

// parseJAAS reads the login of a client.
func parseJAAS(text, mechanism string) (username string, password Secret, err error) {
	module := scramModule
	if mechanism == "PLAIN" {
		module = plainModule
	}
	values, err := parseLogin(text, module, mechanism)
	if err != nil {
		return "", "", err
	}
	if values["username"] == "" || values["password"] == "" {
		return "", "", errors.New("must give username and password")
	}
	return values["username"], Secret(values["password"]), nil
}

// parsePlainUsers reads the users of a listener: user_<name>="password". The
// broker's own username and password, which such a login also has in Kafka for
// connections among brokers, mean nothing here.
func parsePlainUsers(text string) (map[string]Secret, error) {
	values, err := parseLogin(text, plainModule, "PLAIN")
	if err != nil {
		return nil, err
	}
	users := make(map[string]Secret)
	for name, password := range values {
		user, isUser := strings.CutPrefix(name, "user_")
		switch {
		case isUser && (user == "" || password == ""):
			return nil, errors.New(`has a user without name or password; write user_<name>="password"`)
		case isUser:
			users[user] = Secret(password)
		case name != "username" && name != "password":
			return nil, errors.New(`has an option that is not user_<name>="password"`)
		}
	}
	if len(users) == 0 {
		return nil, errors.New(`names no user; write user_<name>="password"`)
	}
	return users, nil
}

// scramEntry is one user in the form of kafka-storage's --add-scram.
var scramEntry = regexp.MustCompile(`^(SCRAM-SHA-256|SCRAM-SHA-512)=\[name=([^,\]]+),password=(.+)\]$`)

// ScramUser is a credential to begin with.
type ScramUser struct {
	Mechanism, Name string
	Password        Secret
}

func parseScramUsers(text string) (users []ScramUser, err error) {
	for i, entry := range strings.Split(text, ";") {
		m := scramEntry.FindStringSubmatch(strings.TrimSpace(entry))
		if m == nil {
			return nil, fmt.Errorf("entry %d is not of the form SCRAM-SHA-256=[name=alice,password=...], with semicolons between entries", i+1)
		}
		users = append(users, ScramUser{Mechanism: m[1], Name: m[2], Password: Secret(m[3])})
	}
	return users, nil
}

func unescape(s string) string {
	var b strings.Builder
	escaped := false
	for _, r := range s {
		if r == '\\' && !escaped {
			escaped = true
			continue
		}
		escaped = false
		b.WriteRune(r)
	}
	return b.String()
}
