package program

import (
	"bytes"
	encoding "encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

func TestEachOfSeveralErrorsHasALineOfItsOwn(t *testing.T) {
	var out bytes.Buffer
	report(zerolog.New(&out), errors.Join(errors.New("one"), errors.New("two")))
	report(zerolog.New(&out), errors.New("three"))
	want := `{"level":"error","message":"one"}` + "\n" + `{"level":"error","message":"two"}` + "\n" + `{"level":"error","message":"three"}` + "\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestMetricsAreServedUntilStopped(t *testing.T) {
	registry := prometheus.NewRegistry()
	count := prometheus.NewCounter(prometheus.CounterOpts{Name: "things_total", Help: "Of things."})
	registry.MustRegister(count)
	count.Add(3)
	var log bytes.Buffer
	stop, err := ServeMetrics(t.Context(), "127.0.0.1:0", registry, zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(log.String())[1]
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || !strings.Contains(string(text), "\nthings_total 3\n") {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := ServeMetrics(t.Context(), address, registry, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "metrics.listener") {
		t.Errorf("at an address in use: %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := http.Get("http://" + address + "/metrics"); err == nil {
		t.Error("served after the stop")
	}
	if strings.Contains(log.String(), "no longer") {
		t.Errorf("the stop is no failure: %s", log.String())
	}
}

// A client's id is in the log of a node; the one of another node may be, too.
func TestALogLineIsOneLineOfText(t *testing.T) {
	hostile := "\x00\a\x1b[2J\x7f\u009b31m\u202egnp\u2028\nfake"
	var human, json bytes.Buffer
	for _, out := range []io.Writer{person(&human), machine{&json}} {
		log := zerolog.New(out)
		log.Warn().Str("id", hostile).Strs("ids", []string{hostile}).Any("map", map[string]string{hostile: hostile}).Err(errors.New(hostile)).
			AnErr("cause", errors.New(hostile)).Stringer("client", text(hostile)).Bytes("raw", []byte(hostile)).Msg("message " + hostile)
		log.Info().Str("id", strings.Repeat("x", 32767)).Msg("long")
	}
	// The colours are the writer's own.
	for name, out := range map[string]string{"person": regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(human.String(), ""), "machine": json.String()} {
		if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }); i >= 0 || strings.Count(out, "\n") != 2 {
			t.Errorf("%s: %q", name, out)
		}
	}
	if !strings.Contains(human.String(), `message \x00\a\x1b[2J`) || human.Len() > 6000 {
		t.Errorf("a person sees %d bytes: %.200q", human.Len(), human.String())
	}
	var event struct{ Message, ID string }
	first, _, _ := strings.Cut(json.String(), "\n")
	if err := encoding.Unmarshal([]byte(first), &event); err != nil || event.ID != hostile || event.Message != "message "+hostile {
		t.Errorf("a machine reads %+v, %v", event, err)
	}
}

type text string

func (t text) String() string { return string(t) }
