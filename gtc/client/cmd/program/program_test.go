package program

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"regexp"
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
