package datapath

// The compiler and its flags are set once, in the Makefile (BPF2GO_…).
//go:generate go tool bpf2go -target bpfel -type table -type slot_number -type addr_port -type socket_entry -type view -type view_index -type algorithm -type flow -type entry_flag -type flow_flag -type set_flag -type tuple -type flow_time -type frontend_flag -type address_kind -type drop_reason -type service_cidr -type device_flag -type named_socket -type socket_file -type probe_result -type ejection -type response_word -type view_size -type filter_hash -type frontend_search -type hook -type home -type peer_flag -type echo_round -type failure -type direction -type traffic -type connect_time -type packet_count -type told_verdict -type told_packet -type told_packets headgate ../../bpf/headgate.bpf.c
//go:generate go tool bpf2go -target bpfel -type told -type told_hook -type shown_socket tracer ../../bpf/tracer.bpf.c
