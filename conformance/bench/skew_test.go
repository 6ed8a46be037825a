package bench

import (
	"testing"
	"time"
)

func TestSkewIsMeasured(t *testing.T) {
	v, err := Skew(t.Context(), Options{Minibroker: minibroker(t), Dir: t.TempDir()}, 20)
	if err != nil {
		t.Fatal(err)
	}
	if v.Transactions != 20 || v.Skew.Median < 0 || v.Skew.Max < v.Skew.P99 || v.After.Max < v.After.Median || v.Skew.Max > time.Hour {
		t.Errorf("%+v", v)
	}
}
