"""What does Rayspan cost? Each bench measures against something else in the same run: only such ratios can be carried to other machines."""
