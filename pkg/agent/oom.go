package agent

import (
	"fmt"
	"os"
	"strconv"
)

// oomScoreAdjFile tells the kernel how readily it may kill this process when
// memory is short.
const oomScoreAdjFile = "/proc/self/oom_score_adj"

// setOOMScoreAdj writes a score, nil leaves the one there is. A lower score than
// that of the parent takes CAP_SYS_RESOURCE.
func setOOMScoreAdj(file string, score *int) error {
	if score == nil {
		return nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(*score)), 0o600); err != nil {
		return fmt.Errorf("set the OOM score to %d: %w", *score, err)
	}
	return nil
}
